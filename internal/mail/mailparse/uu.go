package mailparse

import (
	"bytes"

	"github.com/postrider/postrider/internal/mail/decode"
	"github.com/postrider/postrider/internal/mail/message"
)

// takeUU removes the uuencoded files from a message's text, adds them to the message's files, and returns the remaining
// text.
//
// Old programs put uuencoded files into the text of messages without MIME, and do not mention the files in the header.
// Thunderbird and Outlook show such uuencoded files as attachments; Python's email package and MimeKit leave the text
// unchanged. API users have no other way to get such a file, so takeUU follows Thunderbird's rule. takeUU looks for
// uuencoded files only if the message has neither MIME-Version nor Content-Type.
//
// Thunderbird accepts any line that looks like the beginning of a uuencoded file, and may therefore mistake prose for a
// file. takeUU accepts only files that are complete and valid to their last character; everything else remains text.
// Uuencoded files beyond maxParts remain text too.
func (w *walker) takeUU(text []byte) []byte {
	const mark = "begin "
	var rest []byte
	kept := 0
	for at := 0; w.parts < maxParts; {
		if !bytes.HasPrefix(text[at:], []byte(mark)) {
			n := bytes.Index(text[at:], []byte("\n"+mark))
			if n < 0 {
				break
			}
			at += n + 1
		}
		f, next, ok := decode.FindUU(text, at)
		if ok {
			rest = append(rest, text[kept:at]...)
			kept = next
			w.parts++
			w.out.Files = append(w.out.Files, File{Filename: f.Name, ContentType: message.TypeByFilename(f.Name),
				Disposition: "attachment", Content: f.Content()})
		}
		at = next
	}
	if kept == 0 {
		return text
	}
	return append(rest, text[kept:]...)
}
