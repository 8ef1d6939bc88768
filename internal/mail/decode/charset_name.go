package decode

import "strings"

// utf7 is the name of the only charset that this package decodes itself.
const utf7 = "utf-7"

// maxCharsetName is the maximum length of a charset name, in bytes; longer names are treated as unknown.
const maxCharsetName = 64

// charsetName converts a charset name to the form that charsetByName expects. Mail programs write names in quotes, with
// a language (RFC 2231 section 5), with different punctuation, or as code page numbers. The result is "" for UTF-8, for
// meaningless names, and for ASCII, because text declared as ASCII often is not ASCII. For an unknown charset, the
// result is a name that charsetByName does not find.
func charsetName(name string) string {
	name, _, _ = strings.Cut(strings.ToLower(strings.Trim(name, " \t\"'")), "*")
	if len(name) > maxCharsetName {
		return ""
	}
	plain := plainName(name)
	if known, ok := charsetNames[plain]; ok {
		return known
	}
	if charsetByName(name) != nil {
		return name
	}
	family := strings.TrimRight(plain, "0123456789")
	number := plain[len(family):]
	part, isPart := strings.CutPrefix(number, "8859")
	switch family {
	case "iso", "isolatin", "latin":
		if isPart {
			return "iso-8859-" + part
		}
		return "latin" + number
	case "", "codepage", "cp", "dos", "ibm", "ms", "win", "windows":
		if isPart {
			return "iso-8859-" + part
		}
		return codePage(number)
	}
	return plain
}

// codePage returns the charset name for a code page number. Windows and IBM use the same numbers.
func codePage(number string) string {
	if known, ok := charsetNames["cp"+number]; ok {
		return known
	}
	if windows := "windows-" + number; charsetByName(windows) != nil {
		return windows
	}
	return "cp" + number
}

// plainName reduces a lower-case name to its letters and digits, without the "x-" prefix of unregistered names.
func plainName(name string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return -1
	}, strings.TrimPrefix(name, "x-"))
}

// charsetNames maps charset names that x/text does not know to equivalent names that it knows. The keys of charsetNames
// are in the form returned by plainName. Asian code page numbers have the same meaning as on Windows.
var charsetNames = map[string]string{
	"": "", "7bit": "", "8bit": "", "ascii": "", "ansix341968": "", "ansix341986": "", "cp367": "", "cp65001": "",
	"csascii": "",
	"default": "", "none": "", "unicode11utf8": "", "unknown": "", "unknown8bit": "", "usascii": "", "utf8": "",
	"ansix31101983": "windows-1252", // Sun's programs used this name for ISO-8859-1.
	"cp10000":       "macintosh", "macroman": "macintosh", "cp10007": "x-mac-cyrillic", "maccyrillic": "x-mac-cyrillic",
	"cp1200": "utf-16le", "cp1201": "utf-16be", "utf16": "utf-16", "utf16be": "utf-16be", "utf16le": "utf-16le",
	"cp20127": "", "cp20866": "koi8-r", "koi8r": "koi8-r", "cp21866": "koi8-u", "koi8u": "koi8-u",
	"cp28591": "iso-8859-1", "cp28592": "iso-8859-2", "cp28605": "iso-8859-15",
	"cp50220": "iso-2022-jp", "cp50221": "iso-2022-jp", "cp50222": "iso-2022-jp", "iso2022jp": "iso-2022-jp",
	"iso2022jp1": "iso-2022-jp", "iso2022jp2": "iso-2022-jp", "iso2022jp3": "iso-2022-jp", "iso2022jpms": "iso-2022-jp",
	"cp51932": "euc-jp", "eucjp": "euc-jp", "ujis": "euc-jp", "cp932": "shift_jis", "shiftjis": "shift_jis",
	"cp51949": "euc-kr", "cp949": "euc-kr", "euckr": "euc-kr", "ksc5601": "euc-kr", "uhc": "euc-kr",
	"cp52936": "hz-gb-2312", "hz": "hz-gb-2312", "cp936": "gbk", "euccn": "gbk", "gb2312": "gbk", "cp54936": "gb18030",
	"cp950":   "big5",
	"cp65000": utf7, "csunicode11utf7": utf7, "csutf7": utf7, "unicode11utf7": utf7, "utf7": utf7,
}
