%% @private
%% @doc Reports on a channel: text, JSON, XML or YAML, byte for byte as those of Nchan.
-module(weir_pubsub_http_report).

-export([channel/2]).

%% @doc Returns the content type and the body, in the form that the field Accept asks for.
-spec channel(Info, weir_http_request:request()) -> {weir_http_direct:fields(), iodata()} when
    Info :: #{
        messages := non_neg_integer(), subscribers := non_neg_integer(), last_id := weir_pubsub_id:id() | none, _ => _
    }.
channel(#{messages := Messages, subscribers := Subscribers, last_id := Id} = Info, Request) ->
    Requested =
        case maps:get(requested, Info, never) of
            never -> -1;
            Milliseconds -> Milliseconds div 1000
        end,
    Form = form(weir_http_request:field(<<"accept">>, Request, <<>>)),
    Values = [integer_to_binary(Messages), integer_to_binary(Requested), integer_to_binary(Subscribers), last(Id)],
    {[{<<"content-type">>, type(Form)}], form(Form, Values)}.

type(plain) -> <<"text/plain">>;
type(Form) -> <<"text/", (atom_to_binary(Form))/binary>>.

%% `none' is for several channels. Number 0: nothing was published yet.
last(none) -> <<"0">>;
last({_, 0}) -> <<"0:0">>;
last(Id) -> weir_pubsub_id:to_text(Id).

form(Any) when Any =:= <<>>; Any =:= <<"*/*">> ->
    plain;
form(Accept) ->
    Lower = weir_http_value:lower(Accept),
    Wanted = [Form || Form <- [json, xml, yaml], binary:match(Lower, atom_to_binary(Form)) =/= nomatch],
    case Wanted of
        [Form | _] -> Form;
        [] -> plain
    end.

form(plain, [Messages, Requested, Subscribers, Id]) ->
    [
        <<"queued messages: ">>,
        Messages,
        <<"\r\nlast requested: ">>,
        Requested,
        <<" sec. ago\r\nactive subscribers: ">>,
        Subscribers,
        <<"\r\nlast message id: ">>,
        Id
    ];
form(json, [Messages, Requested, Subscribers, Id]) ->
    [
        <<"{\"messages\": ">>,
        Messages,
        <<", \"requested\": ">>,
        Requested,
        <<", \"subscribers\": ">>,
        Subscribers,
        <<", \"last_message_id\": \"">>,
        Id,
        <<"\" }">>
    ];
form(xml, [Messages, Requested, Subscribers, Id]) ->
    [
        <<"<?xml version=\"1.0\" encoding=\"UTF-8\" ?>\r\n<channel>\r\n  <messages>">>,
        Messages,
        <<"</messages>\r\n  <requested>">>,
        Requested,
        <<"</requested>\r\n  <subscribers>">>,
        Subscribers,
        <<"</subscribers>\r\n  <last_message_id>">>,
        Id,
        <<"</last_message_id>\r\n</channel>">>
    ];
form(yaml, [Messages, Requested, Subscribers, Id]) ->
    [
        <<"---\r\nmessages: ">>,
        Messages,
        <<"\r\nrequested: ">>,
        Requested,
        <<"\r\nsubscribers: ">>,
        Subscribers,
        <<"\r\nlast_message_id: \"">>,
        Id,
        <<"\"\r\n\r\n">>
    ].
