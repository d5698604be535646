"""pyspark's way into a JVM: starting one, reaching one that was started without its launcher, and letting go of it.

These are the first things that a new pyspark would move. Without `launcher` and `address_variables` no session can be
started; a session that the user has started can still be used.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headrace.streaming.spark_internals.classes import MissingError, reached

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

ADDRESS_VARIABLE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""Names the file into which a JVM writes where it listens for pyspark."""


def launcher() -> Callable[..., Any]:
    """pyspark's function that starts a JVM, or reaches the one that the environment names. It takes a SparkConf and
    options of Popen, and returns a gateway."""
    try:
        from pyspark.java_gateway import launch_gateway
    except ImportError as error:
        raise MissingError(f"pyspark.java_gateway.launch_gateway ({error})") from error
    return launch_gateway


def address_variables(path: str) -> dict[str, str]:
    """The environment in which the launcher reaches the JVM that wrote the file."""
    try:
        from pyspark.serializers import UTF8Deserializer, read_int
    except ImportError as error:
        raise MissingError(f"pyspark.serializers.read_int ({error})") from error
    with open(path, "rb") as file:
        port, secret = read_int(file), UTF8Deserializer().loads(file)
    return {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}


def conf_of(gateway: Any) -> "SparkConf":
    """Settings for a session in the JVM behind a gateway."""
    from pyspark import SparkConf

    try:
        return SparkConf(loadDefaults=False, _jvm=gateway.jvm)
    except TypeError:  # pyspark's own values instead of the JVM's: the session takes them alike
        return SparkConf(loadDefaults=False)


def close_output(gateway: Any) -> None:
    """Nothing more is printed by the JVM. Without it, whoever reads our output waits until the JVM is gone."""
    with suppress(Exception):
        gateway.jvm.java.lang.System.out.close()


def forget_jvm() -> None:
    """Lets pyspark start another JVM in this process. Without it, the next session fails to reach the old one."""
    from pyspark import SparkContext

    SparkContext._active_spark_context = None
    _forget_gateway()


def end_idle_jvm() -> None:
    """Ends the JVM of a session that was stopped; pyspark would go on with it. Without it, the next session does."""
    from pyspark import SparkContext

    gateway: Any = getattr(SparkContext, "_gateway", None)
    if gateway is not None:
        gateway.shutdown()
        _forget_gateway()


def _forget_gateway() -> None:
    from pyspark import SparkContext

    SparkContext._gateway = None
    SparkContext._jvm = None


def has_context() -> bool:
    """Whether Spark runs in this process. The public API knows only of sessions that this thread has used."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if hasattr(SparkContext, "_active_spark_context"):
        return SparkContext._active_spark_context is not None
    return SparkSession.getActiveSession() is not None


def runs(session: "SparkSession") -> bool:
    """Whether nobody has stopped the session."""
    context: Any = session.sparkContext
    if hasattr(context, "_jsc"):
        return context._jsc is not None
    try:
        return int(context.defaultParallelism) > 0
    except Exception:  # whatever a context says that was stopped
        return False


def maven_jars(gateway: Any, coordinates: Sequence[str], directory: str) -> list[str]:
    """The paths of jars that Spark's own resolver fetched below a directory, without what they depend on. Without it
    they must be put into the cache by hand; `headrace doctor` names them."""
    jvm = gateway.jvm
    settings = jvm.java.lang.System.getProperty("spark.jars.ivySettings")
    repositories = jvm.java.lang.System.getProperty("spark.jars.repositories")
    with reached():
        found = jvm.org.apache.spark.util.DependencyUtils.resolveMavenDependencies(
            False, "", ",".join(coordinates), repositories, directory, jvm.scala.Option.apply(settings)
        )
    return str(found.mkString("\n")).splitlines()
