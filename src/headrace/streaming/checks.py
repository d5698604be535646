"""Whether Spark will start: its packages, Java and the jars. Nothing here starts Spark or imports it.

Who runs only a broker needs none of it: without pyspark, what is missing is doubtful, not wrong.
"""

from importlib.metadata import PackageNotFoundError, version

from headrace.core.errors import OperatorError
from headrace.core.findings import Finding, fail, ok, warn
from headrace.streaming.jars import Lock, fits, jar_path, lock, sha256_of
from headrace.streaming.java import find_java

_INSTALL = "pip install 'headrace[spark]'"
_FETCH = "headrace doctor --fetch"


def installed_versions(names: tuple[str, ...]) -> dict[str, str | None]:
    return {name: _version(name) for name in names}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def check_packages(wanted: Lock, installed: dict[str, str | None]) -> list[Finding]:
    found = []
    for name, pinned in wanted.packages.items():
        has = installed.get(name)
        if has is None:
            found.append(warn(name, "not installed; pipelines and tables need it", _INSTALL))
        elif fits(has, pinned):
            found.append(ok(name, has))
        else:
            found.append(fail(name, f"{has}, but {pinned} goes with the jars", _INSTALL))
    return found


def check_spark_installed() -> None:
    """One clear error unless the Python packages are those that the jars were pinned with."""
    names = ("pyspark", "delta-spark")
    for name, has in installed_versions(names).items():
        pinned = lock().packages[name]
        if has is None or not fits(has, pinned):
            raise OperatorError(f"{name}: {has or 'not installed'}, but Spark needs {pinned}; {_INSTALL}")


def check_java(needed: bool) -> Finding:
    try:
        java = find_java()
    except OperatorError as error:
        text, _, remedy = str(error).removeprefix("Java: ").partition(": ")
        return (fail if needed else warn)("java", text, remedy)
    return ok("java", f"{java.version} in {java.home}")


def check_jars(wanted: Lock, directory: str) -> Finding:
    """A jar that is absent is fetched by the first run; one that is not what was pinned is worth a look."""
    found = {jar: sha256_of(jar_path(jar, directory)) for jar in wanted.jars}
    wrong = [jar.file_name for jar, sha256 in found.items() if sha256 is not None and sha256 != jar.sha256]
    absent = [jar.file_name for jar, sha256 in found.items() if sha256 is None]
    if wrong:
        return fail("jars", f"{', '.join(wrong)} in {directory}: not the pinned checksum", _FETCH)
    if absent:
        return warn("jars", f"{len(absent)} of {len(found)} are not in {directory} yet; the first run fetches", _FETCH)
    return ok("jars", f"{len(found)} in {directory}, checksums right")
