"""What builds the pages of this site: blocks that run, pictures, references read from the code."""
