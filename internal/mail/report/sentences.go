package report

// The following lists contain phrases, in several languages and in lower case, that mail systems use to state the
// outcome of a delivery. The lists failures and delays contain more English phrases.
var (
	moreFailures = []string{
		"could not be delivered", "did not receive this message", "error has occurred while attempting to deliver",
		"not been delivered", "there was an error delivering", "permanent fatal", "undeliverable",
		"couldn't be delivered", "trouble delivering your message", "could not be sent", "was rejected",
		"was refused", "been returned", "was not accepted", "delivery errors", "failed to deliver",
		"nicht zugestellt", "unzustellbar", "zustellung fehlgeschlagen", "fehler bei der nachrichtenzustellung",
		"nicht ausgeliefert", "pas pu être remis", "pas pu être délivré", "pas pu être distribué",
		"n'a pas été remis", "échec de la remise", "non remis", "non distribué", "no se pudo entregar",
		"no se ha podido entregar", "no ha podido ser entregado", "no entregado", "no se puede entregar",
		"impossibile recapitare", "impossibile consegnare", "mancata consegna", "non recapitato",
		"non è stato consegnato", "non consegnato", "não foi possível entregar", "não pôde ser entregue",
		"não foi entregue", "não entregue", "mensagem devolvida", "foi devolvida", "配送できません", "配信できません",
		"送信できません", "届きません", "配信不能", "配送不能", "不達", "未能送达", "无法送达", "无法投递", "退回",
		"退信", "投递失败", "無法送達", "無法傳送", "не доставлено", "не может быть доставлено",
		"не удалось доставить", "недоставлен", "не может быть отправлено", "невозможно доставить", "ошибка доставки",
		"niet bezorgd", "kon niet worden afgeleverd", "nie mogła zostać dostarczona", "kunde inte levereras",
	}
	moreDelays = []string{
		"delayed for more than", "message is delayed", "only a temporary failure", "still in the queue",
		"will continue to try", "continue trying to deliver", "still undelivered", "not yet been delivered",
		"will be retried", "do not need to re-send", "verzögert sich", "zustellung verzögert",
		"noch nicht zugestellt", "weiter versucht", "remise différée", "pas encore été remis", "livraison retardée",
		"se ha retrasado", "entrega retrasada", "todavía no se ha entregado", "consegna ritardata", "è in ritardo",
		"non ancora consegnato", "entrega atrasada", "foi adiada", "ainda não foi entregue", "遅延", "再送を試みます",
		"再試行します", "延迟", "将继续尝试", "延遲", "задерживается", "задержка доставки",
		"попытки доставки будут продолжены",
	}
	// finals are phrases that say that the host has given up on delivery, even if the text also mentions a delay.
	finals = []string{"permanent error", "permanent fatal", "permanent failure", "given up", "giving up after",
		"no longer be retried",
		"no further attempts", "no further delivery attempts", "retry timeout exceeded", "failed permanently"}
	// confirmations are phrases that say that the message was delivered.
	confirmations = []string{
		"successfully delivered", "successfully relayed", "delivered successfully",
		"no delivery notification was sent", "has been delivered to", "was delivered to",
		"message status - delivered", "wurde zugestellt", "erfolgreich zugestellt", "wurde gelesen",
		"remis avec succès", "a été remis", "ha sido entregado", "entregado correctamente", "è stato consegnato",
		"consegnato correttamente", "foi entregue", "entregue com sucesso", "正常に配信", "配信されました",
		"成功送达", "已送达", "успешно доставлено", "message was read",
	}
	// asks are phrases used by filters that deliver a message only after the sender has confirmed it.
	asks = []string{
		"to release your message", "confirm that you", "please confirm your message", "click the link below to",
		"verify that you are", "prove that you are", "sender verification required", "reply to this message to",
		"held until", "being held", "moderator approval", "waiting for your confirmation", "bestätigen sie",
		"veuillez confirmer", "confirme que", "conferma che",
	}
	// answers are phrases used in acknowledgements and out-of-office replies.
	answers = []string{
		"out of the office", "out of office", "on vacation", "on annual leave", "on leave until", "i am away",
		"i'm away", "i will be away", "currently away", "limited access to email", "received your request",
		"request has been received", "received your message", "received your email", "received your e-mail",
		"ticket was opened", "ticket has been", "thank you for contacting", "thank you for your message",
		"thank you for your email", "get back to you", "no longer with the company", "no longer work",
		"have left the company", "nicht im büro", "nicht im haus", "im urlaub", "abwesend", "außer haus",
		"vielen dank für ihre", "ihre anfrage ist", "absent du bureau", "absente du bureau", "je suis absent",
		"en congé", "en vacances", "bien reçu votre", "fuera de la oficina", "de vacaciones", "estoy ausente",
		"hemos recibido su", "fuori ufficio", "in ferie", "sono assente", "abbiamo ricevuto", "fora do escritório",
		"de férias", "estou ausente", "recebemos a sua", "recebemos sua", "不在", "休暇", "お問い合わせありがとう",
		"受け付けました", "休假", "出差", "外出", "已收到您的", "收到您的", "в отпуске", "отсутств",
		"мы получили ваш", "ваше обращение",
	}
	// receipts are phrases that begin the subjects of read receipts and delivery confirmations.
	receipts = []string{"read:", "not read:", "gelesen:", "nicht gelesen:", "lu:", "lu :", "leído:", "letto:",
		"lida:", "lido:", "開封済み:", "已读:", "прочитано:", "delivered:", "relayed:", "expanded:", "zugestellt:",
		"remis:", "remis :", "entregado:", "consegnato:", "entregue:"}
)
