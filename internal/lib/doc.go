// Package lib groups small packages that all other packages may import. They handle user-facing errors, ids,
// configuration, log rate limiting, file permissions, misspelled names, registrable domains, and invisible characters.
//
// Packages in lib do not import any of the project's packages outside lib.
package lib
