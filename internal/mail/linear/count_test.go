package linear

// counting reports that the test was built to count. The overlay replaces this file by another one.
const counting = false

func steps() uint64 { return 0 }
