# Hand-written stubs for the part of PySyncObj 0.3.17 that rocketmq_controller.raft uses, private names included.
from pysyncobj.config import FAIL_REASON as FAIL_REASON
from pysyncobj.config import SyncObjConf as SyncObjConf
from pysyncobj.syncobj import SyncObj as SyncObj
