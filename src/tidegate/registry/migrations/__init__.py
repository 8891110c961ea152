"""How a registry's tables came to be what they are: one step a format, in `versions`. A step never changes again."""
