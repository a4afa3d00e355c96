"""What constructions are made of: slots, verbs, attention, arithmetic, packing into blocks."""
