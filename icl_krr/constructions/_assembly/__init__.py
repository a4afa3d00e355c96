"""The parts of constructions: slots, operations, attention, arithmetic, and packing into blocks."""
