"""What a broker tells of itself under the names that Kafka's dashboards use."""
