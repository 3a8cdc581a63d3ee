"""The classes that users derive from: spouts and bolts, in streamparse's words."""
