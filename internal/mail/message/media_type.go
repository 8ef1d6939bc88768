package message

import (
	"slices"
	"strings"
)

const octetStream = "application/octet-stream"

// TypeByFilename returns the media type, without parameters, for the extension of a file name, or
// application/octet-stream if the extension is unknown. TypeByFilename does not use the operating system's tables, so
// that the same name has the same type on every machine.
func TypeByFilename(name string) string {
	if t, ok := mediaTypes[extension(name)]; ok {
		return t
	}
	return octetStream
}

// RefusedExtension reports whether a file name has the extension of a program, a script, or a file that starts a
// program when opened. Mailbox providers refuse attachments with such extensions, so the API also refuses them (API
// reference section 8.3). RefusedExtension ignores the dots, spaces and stream names that Windows ignores at the end of
// a name.
func RefusedExtension(name string) bool {
	_, refused := slices.BinarySearch(refusedExtensions, extension(name))
	return refused
}

// extension returns the part of a file name after the last dot, in lower case, or "" if there is no dot.
func extension(name string) string {
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	name = strings.TrimRight(name, ". ")
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return ""
	}
	ext, _, _ := strings.Cut(name[dot+1:], ":")
	return strings.ToLower(strings.TrimRight(ext, " "))
}

// refusedExtensions lists the extensions of programs, installers, scripts, shortcuts, databases with macros, and system
// settings on common desktop systems. The list is sorted; a test checks the order.
var refusedExtensions = []string{
	"ade", "adp", "apk", "app", "appcontent-ms", "application", "appref-ms", "appx", "appxbundle", "asp", "aspx", "asx",
	"bas", "bat", "bgi",
	"cer", "chm", "cmd", "cnt", "com", "command", "cpl", "crt", "csh",
	"deb", "der", "diagcab", "diagcfg", "diagpkg", "dll", "drv",
	"ex", "ex_", "exe",
	"fxp",
	"gadget", "grp",
	"hlp", "hpj", "hta", "htc",
	"inf", "ins", "isp", "its",
	"jar", "jnlp", "js", "jse",
	"ksh",
	"lib", "lnk",
	"mad", "maf", "mag", "mam", "maq", "mar", "mas", "mat", "mau", "mav", "maw", "mcf", "mda", "mdb", "mde", "mdt",
	"mdw", "mdz", "mjs", "msc", "msh", "msh1", "msh1xml", "msh2", "msh2xml", "mshxml", "msi", "msix", "msixbundle",
	"msp", "mst", "msu",
	"nsh",
	"ocx", "ops", "osd",
	"pcd", "pif", "pkg", "plg", "prf", "prg", "printerexport", "ps1", "ps1xml", "ps2", "ps2xml", "psc1", "psc2",
	"psd1", "psdm1", "psm1",
	"reg", "rpm",
	"scf", "scr", "sct", "settingcontent-ms", "shb", "shs", "sys",
	"theme", "tmp",
	"udl", "url",
	"vb", "vbe", "vbp", "vbs", "vps", "vsmacros", "vss", "vst", "vsw", "vxd",
	"webpnp", "website", "ws", "wsb", "wsc", "wsf", "wsh",
	"xbap", "xll", "xnk",
}

// mediaTypes maps file extensions that are common in email to media types that are registered or in common use.
var mediaTypes = map[string]string{
	"7z":       "application/x-7z-compressed",
	"aac":      "audio/aac",
	"ai":       "application/postscript",
	"aif":      "audio/aiff",
	"aiff":     "audio/aiff",
	"apng":     "image/apng",
	"asc":      "application/pgp-signature",
	"avi":      "video/x-msvideo",
	"avif":     "image/avif",
	"bmp":      "image/bmp",
	"bz2":      "application/x-bzip2",
	"css":      "text/css",
	"csv":      "text/csv",
	"doc":      "application/msword",
	"docm":     "application/vnd.ms-word.document.macroEnabled.12",
	"docx":     "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	"dot":      "application/msword",
	"dotx":     "application/vnd.openxmlformats-officedocument.wordprocessingml.template",
	"eml":      "message/rfc822",
	"eps":      "application/postscript",
	"epub":     "application/epub+zip",
	"flac":     "audio/flac",
	"geojson":  "application/geo+json",
	"gif":      "image/gif",
	"gpx":      "application/gpx+xml",
	"gz":       "application/gzip",
	"heic":     "image/heic",
	"heif":     "image/heif",
	"htm":      "text/html",
	"html":     "text/html",
	"ico":      "image/vnd.microsoft.icon",
	"ics":      "text/calendar",
	"ifb":      "text/calendar",
	"jfif":     "image/jpeg",
	"jpe":      "image/jpeg",
	"jpeg":     "image/jpeg",
	"jpg":      "image/jpeg",
	"json":     "application/json",
	"jsonld":   "application/ld+json",
	"jxl":      "image/jxl",
	"key":      "application/vnd.apple.keynote",
	"kml":      "application/vnd.google-earth.kml+xml",
	"kmz":      "application/vnd.google-earth.kmz",
	"log":      "text/plain",
	"m4a":      "audio/mp4",
	"m4v":      "video/x-m4v",
	"markdown": "text/markdown",
	"md":       "text/markdown",
	"mid":      "audio/midi",
	"midi":     "audio/midi",
	"mkv":      "video/x-matroska",
	"mobi":     "application/x-mobipocket-ebook",
	"mov":      "video/quicktime",
	"mp3":      "audio/mpeg",
	"mp4":      "video/mp4",
	"mpeg":     "video/mpeg",
	"mpg":      "video/mpeg",
	"msg":      "application/vnd.ms-outlook",
	"ndjson":   "application/x-ndjson",
	"numbers":  "application/vnd.apple.numbers",
	"odg":      "application/vnd.oasis.opendocument.graphics",
	"odp":      "application/vnd.oasis.opendocument.presentation",
	"ods":      "application/vnd.oasis.opendocument.spreadsheet",
	"odt":      "application/vnd.oasis.opendocument.text",
	"oga":      "audio/ogg",
	"ogg":      "audio/ogg",
	"ogv":      "video/ogg",
	"opus":     "audio/ogg",
	"otf":      "font/otf",
	"p7m":      "application/pkcs7-mime",
	"p7s":      "application/pkcs7-signature",
	"pages":    "application/vnd.apple.pages",
	"pdf":      "application/pdf",
	"pem":      "application/x-pem-file",
	"pgp":      "application/pgp-encrypted",
	"pkpass":   "application/vnd.apple.pkpass",
	"png":      "image/png",
	"pps":      "application/vnd.ms-powerpoint",
	"ppsx":     "application/vnd.openxmlformats-officedocument.presentationml.slideshow",
	"ppt":      "application/vnd.ms-powerpoint",
	"pptm":     "application/vnd.ms-powerpoint.presentation.macroEnabled.12",
	"pptx":     "application/vnd.openxmlformats-officedocument.presentationml.presentation",
	"ps":       "application/postscript",
	"psd":      "image/vnd.adobe.photoshop",
	"rar":      "application/vnd.rar",
	"rtf":      "application/rtf",
	"svg":      "image/svg+xml",
	"tar":      "application/x-tar",
	"tgz":      "application/gzip",
	"tif":      "image/tiff",
	"tiff":     "image/tiff",
	"toml":     "application/toml",
	"tsv":      "text/tab-separated-values",
	"ttf":      "font/ttf",
	"txt":      "text/plain",
	"vcard":    "text/vcard",
	"vcf":      "text/vcard",
	"vcs":      "text/x-vcalendar",
	"vtt":      "text/vtt",
	"wasm":     "application/wasm",
	"wav":      "audio/wav",
	"weba":     "audio/webm",
	"webm":     "video/webm",
	"webp":     "image/webp",
	"wma":      "audio/x-ms-wma",
	"wmv":      "video/x-ms-wmv",
	"woff":     "font/woff",
	"woff2":    "font/woff2",
	"xhtml":    "application/xhtml+xml",
	"xls":      "application/vnd.ms-excel",
	"xlsb":     "application/vnd.ms-excel.sheet.binary.macroEnabled.12",
	"xlsm":     "application/vnd.ms-excel.sheet.macroEnabled.12",
	"xlsx":     "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	"xltx":     "application/vnd.openxmlformats-officedocument.spreadsheetml.template",
	"xml":      "application/xml",
	"xz":       "application/x-xz",
	"yaml":     "application/yaml",
	"yml":      "application/yaml",
	"zip":      "application/zip",
	"zst":      "application/zstd",
}
