%% @private
%% @doc Keys and certificates in PEM.
-module(weir_pubsub_pem).

-export([entries/1]).

%% @doc Returns the entries of a text. Returns none if any of it is not PEM: a file that is still being written ends
%% inside an entry.
-spec entries(binary()) -> [public_key:pem_entry()].
entries(Text) ->
    try
        public_key:pem_decode(Text)
    catch
        error:_ -> []
    end.
