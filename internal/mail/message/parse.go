package message

import "time"

// Parsed is a message as it was read, for showing and for sending again. Real mail breaks every rule; what could not be
// understood is kept as it is and named in Defects.
type Parsed struct {
	Header     []Field // all fields in order, unfolded, encoded words decoded, valid UTF-8
	MessageID  string  // with angle brackets, empty when none
	InReplyTo  []string
	References []string
	From       []Address // usually one; an address that cannot be parsed is left out here and stays in Header
	To         []Address
	Cc         []Address
	Bcc        []Address
	ReplyTo    []Address
	Subject    string
	Date       time.Time // zero when there is none that can be read
	HTML       string    // UTF-8
	Text       string    // UTF-8
	HasHTML    bool
	HasText    bool
	Files      []File
	Defects    []string // what was wrong with it, for people
}

// File is a part that is not the message's text.
type File struct {
	Filename    string // empty when it has none
	ContentType string // media type without parameters, lower case
	ContentID   string // without angle brackets
	Disposition string // inline or attachment, empty when not said
	Content     []byte // decoded
}
