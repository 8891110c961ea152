"""Each operator as a function from frame to frame, one module each."""
