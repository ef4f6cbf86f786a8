"""What a broker does for each request."""
