"""The function of `TrnJobNotices`."""
