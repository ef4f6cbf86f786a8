"""The seams: interfaces, their errors, the production adapters; the configuration table."""
