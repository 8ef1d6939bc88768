// Package campaigns is the group of packages that decide which contacts are mailed: broadcasts, automations, and the
// custom events that start automations.
//
// The packages of this group may import the group sending and every group below sending.
package campaigns
