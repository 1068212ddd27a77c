"""The nouns: frozen records and tables that every stage shares. No I/O."""
