"""What users subclass: spouts and bolts, in the words of streamparse and pystorm."""
