"""What the brokers' change logs say, from lines to timelines. Pure."""
