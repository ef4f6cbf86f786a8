"""Reads a topic as a DataFrame and prints how many records each partition has.

Environment: TOPIC, STRANDLINE_BOOTSTRAP (host:port,…).
"""

import os

from strandline.cli.java import spark_environment

os.environ.update(spark_environment())

from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").appName("counts").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
records = (
    spark.read.format("strandline")
    .option("kafka.bootstrap.servers", os.environ["STRANDLINE_BOOTSTRAP"])
    .option("subscribe", os.environ["TOPIC"])
    .load()
)
by_partition = records.groupBy("partition").count().orderBy("partition").collect()
for row in by_partition:
    print(f"partition {row['partition']}: {row['count']} records")
print(f"{os.environ['TOPIC']}: {sum(row['count'] for row in by_partition)} records in {len(by_partition)} partitions")
spark.stop()
