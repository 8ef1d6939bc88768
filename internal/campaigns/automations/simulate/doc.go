// Package simulate runs a graph of steps against a scenario with made-up time. The graph is one of package engine; the
// scenario has a made-up contact and a timetable of events (API reference section 22).
//
// A simulation sends nothing, calls no webhook and reads no rows. The caller passes what it needs to know of the team
// as a [World]. The same graph, scenario and world always give the same [Report].
package simulate
