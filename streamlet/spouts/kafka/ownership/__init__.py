"""Which of two runs may emit: the gate before each emit, and who holds it."""
