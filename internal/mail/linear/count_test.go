package linear

// counting says that the test was built to count. The overlay puts another file in the place of this one.
const counting = false

func steps() uint64 { return 0 }
