package linear

// counting reports whether this test binary contains work counters. In the instrumented test binary, the overlay that
// runCounted builds replaces this file.
const counting = false

func steps() uint64 { return 0 }
