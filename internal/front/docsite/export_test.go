package docsite

// Stem is stem for tests of the script that must agree with it.
var Stem = stem
