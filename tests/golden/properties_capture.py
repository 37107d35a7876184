"""Records what Java reads in properties text: `properties/texts.json`, and in single values: `properties/values.json`.

    python -m tests.golden.properties_capture      (from the root; needs a JDK; takes seconds)

Texts are whole lines from files as they lie on disks, and random ones of the characters that mean something there. They
are kept as ISO-8859-1 reads their bytes.
"""

import json
import random
import subprocess
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "properties"
SOURCE: Final = Path(__file__).parent / "GoldenProperties.java"
SEED: Final = 17
RANDOM_TEXTS: Final = 400
PIECES: Final = (*"ab=: \t\f\\\\\n\r#!\xe9", "\r\n", "\\u0041", "\\t")

CHINESE: Final = "名字服务器地址"
TEXTS: Final = (
    *(f"# {CHINESE}\nbrokerName=broker-a\n".encode(encoding) for encoding in ("gbk", "utf-8", "gb18030")),
    *(f"brokerName=broker-a # {CHINESE}\n".encode(encoding) for encoding in ("gbk", "utf-8")),
    *(f"! {CHINESE}\r\nlistenPort = 10911  \r\n".encode(encoding) for encoding in ("gbk", "utf-8")),
    *(f"storePathRootDir=/data/{CHINESE}\n".encode(encoding) for encoding in ("gbk", "utf-8")),
    *(f"{CHINESE}=1\nlistenPort=10911\n".encode(encoding) for encoding in ("gbk", "utf-8")),
    "# vérifié\nbrokerName=é\n".encode("latin-1"),
    "# vérifié\nbrokerName=é\n".encode(),
    b"brokerName=\\u00e9\\u4E2D\\ud83d\\ude00\n",
    b"a=1\rb=2\r\nc=3\nd=4",
    b"a=1\n\r\n\r\r\nb=2",
    b"a b\nc:d\ne = f\ng\t:\th\ni\nj=\nk:\nl  m n \n",
    b"a==b\nb:=c\nc=:d\nd = = e\ne : : f\nf  g=h\n",
    b"a=1\na=2\na\n",
    b"=nothing\n:nobody\n = neither\n",
    b"a=\\\n  b,\\\n\t c\\\r\n  d\ne=f\n",
    b"a=b\\\\\nc=d\\\\\\\ne=f\n",
    b"a=b\\\n\nc=d\n",
    b"a=b\\\n#c\n",
    b"# a\\\nb=c\n! d \\\ne=f\n",
    b"\\\n#a=b\nc=d\n",
    b"\\\n\n\\\nb=c\n",
    b"  \\\n  \\\n  b = c\n",
    b"a\\ b=c\nd\\=e=f\ng\\:h:i\n\\#j=k\n\\!l=m\n",
    b"path=C:\\data\\store\npath2=C:/data\npath3=C:\\\\data\n",
    b"rocketmqHome=D:\\utils\\rocketmq\n",
    b"# rocketmqHome=D:\\utils\\rocketmq\na=b\n",
    b"\\u0061\\u0062=\\u0063\n",
    b"a\\u=b\n",
    b"a=\\u12\n",
    b"a=\\u12\\\n34\n",
    b"a=\\U0041\n",
    b"a=b\\",
    b"a=b\\\n",
    b"a=b\\\n   ",
    b"a=b   \t\f\n",
    b"  a  =  b  \n\f\tc=d\n",
    b"\n\n   \n\t\n",
    b"#\n!\n#=\n",
    b"\x1a",
    b"a=b\n\x1a",
    b"a=b\0c\n",
    b"a=\x80\x85\xa0\xff\n",
    b"\xa0a=b\n",
    b"",
)
VALUES: Final = (
    *("0", "-0", "+5", "007", "10911", "2147483647", "2147483648", "9223372036854775807", "99999999999999999999"),
    *("", " ", "5 ", " 5", "1_000", "1,000", "0x10", "5L", "5.0", "1e3", "ten", "--5", "+", "10911 # port"),
    *("0.75", ".5", "5.", "+.5e-1", "1E2", "0.75f", "0.75D", "75%", "0,75", "1.2.3", "e5", ".", "0.75 "),
    *("true", "TRUE", "True", "tRuE", "true ", " true", "t", "1", "yes", "on", "false", "FALSE", "0", "no", "truee"),
)


def main() -> None:
    generator = random.Random(SEED)
    made = (
        "".join(generator.choices(PIECES, k=generator.randint(1, 24))).encode("latin-1") for _ in range(RANDOM_TEXTS)
    )
    texts = list(dict.fromkeys((*TEXTS, *made)))
    values = list(dict.fromkeys(VALUES))
    asked = [f"load {b64encode(text).decode()}" for text in texts]
    asked += [f"value {b64encode(value.encode()).decode()}" for value in values]
    ran = subprocess.run(["java", SOURCE], input="\n".join(asked) + "\n", text=True, capture_output=True, check=True)
    answers = ran.stdout.splitlines()
    FOLDER.mkdir(exist_ok=True)
    _write(
        "texts", [[text.decode("latin-1"), _properties(answer)] for text, answer in zip(texts, answers, strict=False)]
    )
    _write("values", [[value, *answer.split(" ")] for value, answer in zip(values, answers[len(texts) :], strict=True)])


def _properties(answer: str) -> dict[str, str] | None:
    """None: Java refuses the text."""
    status, *words = answer.split(" ")
    if status != "ok":
        return None
    texts = [b64decode(word[1:]).decode("utf-16-be", "replace") for word in words]
    return dict(zip(texts[::2], texts[1::2], strict=True))


def _write(name: str, rows: list[list[object]]) -> None:
    lines = ",\n".join(json.dumps(row) for row in rows)
    (FOLDER / f"{name}.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
