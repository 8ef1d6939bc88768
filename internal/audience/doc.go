// Package audience groups the packages about the people that a team writes to. They handle contacts, their properties,
// topics and segments, the filters that select them, and CSV imports.
//
// Packages in this group may import packages in the accounts group and in every group below it.
package audience
