"""All logs of a broker over its log directories, and what a start concludes about them."""
