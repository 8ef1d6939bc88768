package web

// shortcut is a key and what it does. The list of shortcuts and the script of all pages both go by this table; the list
// continues with the keys of the navigation, each of which is pressed after g.
type shortcut struct {
	Key, Text string
	Does      string // name of the function in app.js, or "" if the key works without one
	Mod       bool   // whether the key is pressed with Ctrl, or with Command on a Mac
}

var allShortcuts = []shortcut{
	{Key: "Ctrl K", Text: "Search or jump to", Mod: true},
	{Key: "/", Text: "Search in this list", Does: "search"},
	{Key: "j", Text: "Next row, or older email", Does: "next"},
	{Key: "k", Text: "Row before, or newer email", Does: "previous"},
	{Key: "Enter", Text: "Open the row; in a wide window, again to go to the pane"},
	{Key: "c", Text: "Copy the ID", Does: "copy"},
	{Key: "?", Text: "This list", Does: "help"},
	{Key: "Esc", Text: "Close, go back"},
	{Key: "g", Text: "Go to a page, by a second key", Does: "go"},
}
