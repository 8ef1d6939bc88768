package linear

// counting reports that this program counts its work. The overlay replaces this file.
const counting = false

func steps() uint64 { return 0 }
