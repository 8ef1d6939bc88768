// Package campaigns groups the packages that choose which contacts get an email. They handle broadcasts, automations,
// and the custom events that start automations.
//
// The packages in this group may import the group sending and every group below it.
package campaigns
