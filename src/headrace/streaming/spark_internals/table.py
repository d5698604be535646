"""Which internals are used, the versions that they were checked against, and what is done without each."""

from dataclasses import dataclass

PYSPARK, DELTA = "pyspark", "delta-spark"
CHECKED = {PYSPARK: ("4.2.0",), DELTA: ("4.4.0",)}
"""By package. A version is added when the tests of `spark_internals` have passed with it."""


@dataclass(frozen=True, slots=True)
class Internal:
    """`public` is the public API that answers instead; None where nothing does, and the function's text says what
    is lost."""

    function: str  # module and name, below this package
    package: str
    reaches: str
    public: str | None = None


INTERNALS = (
    Internal("jvm.launcher", PYSPARK, "pyspark.java_gateway.launch_gateway"),
    Internal("jvm.address_variables", PYSPARK, "pyspark.serializers.read_int, the file of PythonGatewayServer"),
    Internal("jvm.conf_of", PYSPARK, "SparkConf(_jvm=)", "SparkConf(loadDefaults=False)"),
    Internal("jvm.close_output", PYSPARK, "JavaGateway.jvm"),
    Internal("jvm.forget_jvm", PYSPARK, "SparkContext._gateway, ._jvm, ._active_spark_context"),
    Internal("jvm.end_idle_jvm", PYSPARK, "SparkContext._gateway"),
    Internal("jvm.has_context", PYSPARK, "SparkContext._active_spark_context", "SparkSession.getActiveSession"),
    Internal("jvm.runs", PYSPARK, "SparkContext._jsc", "SparkContext.defaultParallelism"),
    Internal("jvm.maven_jars", PYSPARK, "org.apache.spark.util.DependencyUtils"),
    Internal("classes.java_class", PYSPARK, "SparkSession._jvm"),
    Internal("classes.java_session", PYSPARK, "SparkSession._jsparkSession"),
    Internal("classes.has_jvm", PYSPARK, "SparkSession._jvm"),
    Internal("classes.has_class", PYSPARK, "SparkSession._jvm"),
    Internal("plan.analysed", PYSPARK, "DataFrame._jdf, QueryExecution.analyzed"),
    Internal("plan.refusal", PYSPARK, "UnsupportedOperationChecker", "DataStreamWriter.start"),
    Internal("plan.uses_batch_time", PYSPARK, "TreePattern.CURRENT_LIKE", "DataFrame.explain"),
    Internal("plan.holds_aggregate", PYSPARK, "AggregateExpression.containsAggregate", "the expression's own children"),
    Internal("plan.rows_of", PYSPARK, "classic.Dataset.ofRows"),
    Internal("query.observed", PYSPARK, "StreamingQuery._jsq, StreamExecution.lastExecution"),
    Internal("query.dropped_late", PYSPARK, "StreamingQuery._jsq, StateStoreWriter's metrics"),
    Internal("delta.table_id", DELTA, "DeltaLog.tableId", "DeltaTable.detail"),
    Internal("delta.table_state", DELTA, "DeltaLog.update", "DeltaTable.history, .detail; deltalake"),
    Internal("delta.TableCommit", DELTA, "OptimisticTransaction", "DataFrameWriter"),
)
