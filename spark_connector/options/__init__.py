"""What users may ask for: options as strings in, checked values out."""
