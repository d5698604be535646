"""`kafka-dump-log.sh`: what is in the files of a log directory. Reads files only, never a broker."""

import os
import sys

from headrace.cli.kafka import tool
from headrace.cli.kafka.options import Option
from headrace.cli.kafka.tool import ToolError, require

NAME = "kafka-dump-log.sh"
ABOUT = (
    "This tool helps to parse a log file and dump its contents to the console, useful for debugging a seemingly "
    "corrupt log segment."
)
_DECODER = "org.apache.kafka.tools.api.StringDecoder"
INT_MAX = 2**31 - 1
OPTIONS = (
    Option(name="print-data-log", help="Show the contents of records; any decoder implies it."),
    Option(name="verify-index-only", help="Check the index without showing it."),
    Option(name="index-sanity-check", help="Only do the check of an index that a broker does when it starts."),
    Option(name="files", value="file1, file2, ...", help="REQUIRED: The files, separated by commas."),
    Option(name="max-message-size", value="size", kind=int, default=5 << 20, help="The largest batch."),
    Option(name="max-bytes", value="size", kind=int, default=INT_MAX, help="How much of each log to read."),
    Option(name="deep-iteration", help="Show every record, not only batches; --print-data-log implies it."),
    Option(name="value-decoder-class", value="", value_optional=True, default=_DECODER, help="How values are read."),
    Option(name="key-decoder-class", value="", value_optional=True, default=_DECODER, help="How keys are read."),
    Option(name="offsets-decoder", help="Read records as those of __consumer_offsets."),
    Option(name="transaction-log-decoder", help="Read records as those of __transaction_state."),
    Option(name="skip-record-metadata", help="Show the contents of records only."),
)
_PRINTING = (
    "print-data-log",
    "offsets-decoder",
    "transaction-log-decoder",
    "value-decoder-class",
    "key-decoder-class",
)


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    given = tool.read_options(OPTIONS, args, ABOUT)
    require(given, "files")
    from headrace.cli.kafka.index_dump import IndexFaults, dump_index, dump_snapshot, dump_time_index, dump_txn_index
    from headrace.cli.kafka.log_dump import LogDump, record_parser

    contents = any(given.has(name) for name in _PRINTING)
    dump = LogDump(
        parser=record_parser(given),
        contents=contents,
        deep=contents or given.has("deep-iteration"),
        metadata=not given.has("skip-record-metadata"),
        bytes_max=given.one("max-bytes"),
    )
    faults = IndexFaults()
    sane, verify = given.has("index-sanity-check"), given.has("verify-index-only")
    for path in given.one("files").split(","):
        print(f"Dumping {path}")
        suffix = os.path.splitext(path)[1]
        try:
            if suffix == ".log":
                dump.run(path)
            elif suffix == ".index":
                dump_index(path, faults, sane=sane, verify=verify)
            elif suffix == ".timeindex":
                dump_time_index(path, faults, sane=sane, verify=verify)
            elif suffix == ".snapshot":
                dump_snapshot(path)
            elif suffix == ".txnindex":
                dump_txn_index(path)
            else:
                print(f"Ignoring unknown file {path}", file=sys.stderr)
        except OSError as error:
            raise ToolError(
                f"{path}: {(error.strerror or str(error)).lower()}; give the path of a log's file"
            ) from error
    return faults.report() or dump.report()


if __name__ == "__main__":
    main()
