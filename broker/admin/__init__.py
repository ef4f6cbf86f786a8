"""How a broker is configured while it runs, and what it tells of itself."""
