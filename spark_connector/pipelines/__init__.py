"""What runs on Spark with whole topics: archives of them, and the pages that show what came of it."""
