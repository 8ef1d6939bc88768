package linear

// counting reports whether this test program has work counters. The overlay of runCounted replaces this file in the
// instrumented program.
const counting = false

func steps() uint64 { return 0 }
