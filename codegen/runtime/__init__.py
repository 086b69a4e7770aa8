"""What a generated patch imports: patterns, the rules as data, and the machinery that applies them to a captured graph."""
