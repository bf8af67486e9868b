"""Spark: LogisticRegression, which standardizes, on this machine's cores."""

import sys

from pyspark.ml import Pipeline
from pyspark.ml.classification import LogisticRegression
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[*]").config("spark.driver.memory", "8g").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
rows = spark.read.parquet(sys.argv[1])
names = [name for name in rows.columns if name != "y"]
steps = [
    VectorAssembler(inputCols=names, outputCol="x"),
    LogisticRegression(featuresCol="x", labelCol="y"),
]
model = Pipeline(stages=steps).fit(rows)
model.write().overwrite().save(sys.argv[2])
print("rows", rows.count())
