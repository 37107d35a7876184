"""Whether a file's pages have survived in the kernel's memory since a process wrote them.

After a kill they have. After a power cut they have not, and neither after a file system was shut down and mounted
again on a running machine (a device that was detached or failed), which no boot id shows.
"""

import errno
import os
from contextlib import suppress


def is_cached(fd: int) -> bool:
    """Whether the first page of a file is in the page cache: ask before anything reads or maps it. True where there is
    nothing to read, or where the file system cannot tell (tmpfs). False also for a page that was written to the disk
    and then evicted. Only the first answer counts: newer kernels start to read the page when they say that it is not
    there. Raises `OSError`."""
    if os.fstat(fd).st_size == 0:
        return True
    try:
        with suppress(AttributeError):  # RWF_NOWAIT exists on Linux only
            os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:
            raise
    return True
