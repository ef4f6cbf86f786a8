"""The PySpark data source, built on the client."""
