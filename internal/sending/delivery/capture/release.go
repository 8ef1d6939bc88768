package capture

// Release says where to send a message that was captured.
type Release struct {
	// Relay is the address of a mail server, as host:port. "" means the operator's relay.
	Relay string
	// To holds the recipients. If it is empty, the message is sent to the recipients in its envelope.
	To []string
}

// Released is the outcome of a release in which the mail server accepted the message for at least one recipient.
type Released struct {
	Message
	Relay   string   // host:port
	Answers []Answer // one for each recipient
}

// Answer is a mail server's reply for one recipient.
type Answer struct {
	Recipient string
	Accepted  bool
	Reply     string
}

// ReleaseError means that the mail server did not accept the message for any recipient, or could not be reached.
type ReleaseError struct {
	Message    string // a sentence for the user
	Transcript string // the SMTP conversation; may be empty
}

// Error returns the message.
func (e *ReleaseError) Error() string { return e.Message }
