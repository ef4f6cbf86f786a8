"""Topics that come, change and go, by request or by themselves."""
