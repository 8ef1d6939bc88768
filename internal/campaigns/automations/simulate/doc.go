// Package simulate runs a graph of package engine with a scenario in simulated time. A scenario consists of a simulated
// contact and a timetable of events (API reference section 22).
//
// A simulation sends no emails, calls no webhooks and does not access the database. The caller passes the team data
// that the simulation needs as a [World]. The same graph, scenario and world always produce the same [Report].
package simulate
