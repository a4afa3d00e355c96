"""The parts of constructions: slots, verbs, attention, arithmetic, and packing into blocks."""
