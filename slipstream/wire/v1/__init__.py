"""Generated from proto/slipstream/v1; never edited."""
