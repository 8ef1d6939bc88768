// Package campaigns is the group of packages that decide which contacts are mailed: broadcasts, automations, and the
// custom events that start automations.
//
// The packages in this group may import the group sending and every group below it.
package campaigns
