"""How Spark reaches s3://: Hadoop's S3A, told by the same variables of the environment as every other S3 tool.

The jars for it are in `jars.lock`, apart, and fetched when they are first needed. Keys never become settings of Spark,
which shows and logs those: driver and executors find them in their own environment.
"""

from collections.abc import Mapping

from headrace.tables.object_store import endpoint, region

_FILE_SYSTEM = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_CREDENTIALS = (
    "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
)


def s3_settings(environ: Mapping[str, str]) -> dict[str, str]:
    values = {
        "spark.hadoop.fs.s3.impl": _FILE_SYSTEM,
        "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
        "spark.hadoop.fs.s3a.aws.credentials.provider": ",".join(_CREDENTIALS),
        "spark.hadoop.fs.s3a.endpoint.region": region(environ),
    }
    where = endpoint(environ)
    if where is not None:
        values |= {
            "spark.hadoop.fs.s3a.endpoint": where,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": str(not where.startswith("http://")).lower(),
        }
    return values
